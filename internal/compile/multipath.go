package compile

// The modes of an endpoint's multipath. The empty string means multipathOff.
const (
	multipathAuto = "auto"
	multipathOff  = "off"
)

// maxMultipathBackends bounds the backends of an endpoint with multipath: each may hand packets on to each other.
const maxMultipathBackends = 512

// multipath reads whether further subflows of Multipath TCP find the backend of their connection.
func (f *Fields) multipath(mode string) bool {
	if mode != "" && mode != multipathAuto && mode != multipathOff {
		f.Refuse("multipath", "must be auto or off, is %q", mode)
	}
	return mode == multipathAuto
}

func multipathText(on bool) string {
	if on {
		return multipathAuto
	}
	return ""
}
