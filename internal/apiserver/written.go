package apiserver

import (
	"fmt"
	"net/http"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// writtenHeader is how the leader says, to the manager that handed a write on, as of what it answers: the
// generation, and the version of what decides who may do what.
const writtenHeader = "Weir-Written"

// writtenWriter writes that header before anything else.
type writtenWriter struct {
	http.ResponseWriter

	store *store.Store
	begun bool
}

// Unwrap is for http.ResponseController.
func (w *writtenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begin is called when the call has been carried out, and the State shows it.
func (w *writtenWriter) begin() {
	if w.begun {
		return
	}
	w.begun = true
	trusted, _ := w.store.Trust.Watch()
	w.Header().Set(writtenHeader, fmt.Sprintf("%d %d", w.store.State().Generation, trusted.Version()))
}

// WriteHeader sends the status.
func (w *writtenWriter) WriteHeader(code int) {
	w.begin()
	w.ResponseWriter.WriteHeader(code)
}

func (w *writtenWriter) Write(data []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(data)
}

// Flush sends what was written.
func (w *writtenWriter) Flush() {
	w.begin()
	http.NewResponseController(w.ResponseWriter).Flush() // the next write tells
}

// showWritten returns when this manager shows what the leader answered, so that who wrote by it reads by it what
// was written. That takes milliseconds; if it takes longer than a node would wait, the answer is not held back, and
// reads are until it does.
func (f forwarder) showWritten(answer *http.Response) {
	defer answer.Header.Del(writtenHeader)
	if answer.Request.URL.Path == weirv1connect.SyncServiceAllocatePortsProcedure {
		return // all muxes have what it gave, and its host reads nothing by it
	}
	var generation model.Generation
	var version int64
	if _, err := fmt.Sscan(answer.Header.Get(writtenHeader), &generation, &version); err != nil {
		return // a leader from before there was the header
	}
	if err := f.Replica.AwaitShown(answer.Request.Context(), generation, version); err != nil {
		f.Replica.Acknowledged(generation, version)
		f.Log.Warn("this manager is behind: it answers a write that it does not show yet", "generation", uint64(generation))
	}
}
