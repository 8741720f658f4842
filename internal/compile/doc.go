// Package compile makes the model of what users write, which are messages of api/v1 in manifests, in calls of the API
// and in the store; and such messages of the model.
//
// Reading completes a message with defaults and validates it. It is total: any message, however wrong, becomes either
// a valid value of the model or an error that joins a model.FieldError for each wrong field. Paths of fields are those
// of the message's JSON form.
//
// Pure: no I/O, no clock, no state.
package compile
