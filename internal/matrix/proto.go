package matrix

import (
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// RowsToProto writes rows.
func RowsToProto(rows []Row) []*weirv1.TrafficRow {
	list := make([]*weirv1.TrafficRow, 0, len(rows))
	for _, row := range rows {
		p := &weirv1.TrafficRow{Vip: row.VIP.String(), Bytes: row.Bytes}
		if row.From.IsValid() {
			p.From = row.From.String()
		}
		list = append(list, p)
	}
	return list
}

// RowsFromProto reads rows. What is no address is left out, and what is no prefix is outside.
func RowsFromProto(list []*weirv1.TrafficRow) []Row {
	rows := make([]Row, 0, len(list))
	for _, p := range list {
		vip, err := netip.ParseAddr(p.GetVip())
		if err != nil {
			continue
		}
		row := Row{Key: Key{VIP: vip}, Bytes: p.GetBytes()}
		if from, err := netip.ParsePrefix(p.GetFrom()); err == nil {
			row.From = from
		}
		rows = append(rows, row)
	}
	return rows
}
