package codec

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// Record says when and by whom a VIP was written.
type Record struct {
	Created time.Time
	Updated time.Time
	By      string // empty: it was not told
}

// VIPMessage is vip as it lies in the store.
func VIPMessage(vip model.VIP, record Record) *weirv1.VIP {
	m := compile.VIPMessage(vip)
	if !record.Created.IsZero() {
		m.CreateTime = timestamppb.New(record.Created)
	}
	if !record.Updated.IsZero() {
		m.UpdateTime = timestamppb.New(record.Updated)
	}
	m.UpdatedBy = record.By
	return m
}

// RecordOf is the Record of a VIP that VIPMessage made.
func RecordOf(m *weirv1.VIP) (record Record) {
	if m.CreateTime != nil {
		record.Created = m.CreateTime.AsTime()
	}
	if m.UpdateTime != nil {
		record.Updated = m.UpdateTime.AsTime()
	}
	record.By = m.GetUpdatedBy()
	return record
}
