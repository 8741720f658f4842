// Package rpc is what the programs share of the wire: the client of a manager, the stream that a mux or host follows,
// and the converters between the messages of nodes and the model. Messages that users write are of package compile.
//
// Converters are total: any message, however wrong, becomes either a valid value of the model or an
// error that joins a model.FieldError for each wrong field. Errors keep their fields on the wire,
// as google.rpc.BadRequest details, and come out of a Client as *Error.
package rpc
