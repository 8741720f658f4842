package uiproxy

import (
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
)

// redirectTo is a page that goes on to another one by itself.
func redirectTo(url string) string {
	url = html.EscapeString(url)
	return fmt.Sprintf("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Weir</title>"+
		"<meta http-equiv=\"refresh\" content=\"0; url=%[1]s\"><p><a href=\"%[1]s\">To the page</a></p></html>\n", url)
}

var errNoDisplay = errors.New("there is no display")

// openBrowser opens an address in the user's browser, by a file that leads to it and that only the user can read: everybody
// on the machine can read the arguments of programs. The caller removes the file.
func openBrowser(url string, getenv func(string) string) (file string, err error) {
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return "", errNoDisplay
	}
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return "", fmt.Errorf("find a browser: %w", err)
	}
	leads, err := os.CreateTemp("", "weir-ui-*.html")
	if err != nil {
		return "", fmt.Errorf("open a browser: %w", err)
	}
	_, err = leads.WriteString(redirectTo(url))
	if err = errors.Join(err, leads.Close()); err != nil {
		return leads.Name(), fmt.Errorf("open a browser: %w", err)
	}
	// It may be the browser itself, which goes on when this program ends.
	browser := exec.Command(opener, leads.Name())
	if err := browser.Start(); err != nil {
		return leads.Name(), fmt.Errorf("open a browser: %w", err)
	}
	return leads.Name(), browser.Process.Release()
}
