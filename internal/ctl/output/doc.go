// Package output writes results in the format of the flag --output: a table for people, which package table makes, or
// JSON or YAML as the REST API and manifests have it.
package output
