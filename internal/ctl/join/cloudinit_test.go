package join

import (
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// The user data is what cloud-init reads: a file that root alone may read, and a list of arguments without the token.
func TestCloudInit(t *testing.T) {
	l := Line{
		Role: "agent", Managers: "https://10.0.0.10:7400", CAHash: "sha256:ab", Set: []string{`uplink=a"b`},
		Token: "weir_join_ab.cd", Expires: time.Unix(1764244800, 0), Uses: 3,
	}
	var data struct {
		WriteFiles []struct{ Path, Permissions, Content string } `yaml:"write_files"`
		Runcmd     [][]string
	}
	if err := yaml.Unmarshal([]byte(l.CloudInit()), &data); err != nil {
		t.Fatalf("%v\n%s", err, l.CloudInit())
	}
	if len(data.WriteFiles) != 1 || data.WriteFiles[0].Permissions != "0600" || data.WriteFiles[0].Content != l.Token ||
		data.WriteFiles[0].Path != cloudInitToken {
		t.Errorf("files %+v", data.WriteFiles)
	}
	want := []string{
		"weir", "join", "agent", "--manager", "https://10.0.0.10:7400", "--ca-hash", "sha256:ab", "--set", `uplink=a"b`,
		"--token-file", cloudInitToken,
	}
	if len(data.Runcmd) != 2 || !slices.Equal(data.Runcmd[0], want) || !slices.Equal(data.Runcmd[1], []string{"rm", "-f", cloudInitToken}) {
		t.Errorf("commands %q", data.Runcmd)
	}
}
