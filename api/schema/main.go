// Command schema writes the JSON schema of manifests beside itself. It reads an image of api/v1 from its standard input,
// as buf build writes it, for the comments.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weirlb/weir/internal/manifest"
)

func main() {
	if err := write(os.Stdin, "api/schema/manifest.schema.json"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(from io.Reader, path string) error {
	image, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("read the image of api/v1: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(image, &set); err != nil {
		return fmt.Errorf("read the image of api/v1: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return fmt.Errorf("read the image of api/v1: %w", err)
	}
	text, err := manifest.Schema(func(d protoreflect.Descriptor) string {
		commented, err := files.FindDescriptorByName(d.FullName())
		if err != nil {
			return ""
		}
		return strings.TrimSpace(commented.ParentFile().SourceLocations().ByDescriptor(commented).LeadingComments)
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
