package fastpath

// Port is that of GUE.
const Port = 6080

// What stands before a message, behind UDP: a control message of GUE, of a type that anybody may use
// (draft-ietf-intarea-gue, section 3.1). bpf/abi/shared/redirect.h says the same.
const (
	control     = 0x20
	controlType = 0xf5
)

// Datagram is what UDP carries of a sealed message.
func Datagram(sealed []byte) []byte { return append([]byte{control, controlType, 0, 0}, sealed...) }
