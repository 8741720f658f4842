// Package wire converts between the messages that managers and nodes exchange, api/v1/sync.proto, and the model. Messages
// that users write are of package compile.
//
// Converters are total: any message, however wrong, becomes either a valid value of the model or an error that joins a
// model.FieldError for each wrong field.
//
// Pure: no I/O, no clock.
package wire
