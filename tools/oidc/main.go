// Command oidc is an OpenID Connect provider for tests: the server of zitadel/oidc with two users, of whom alice is in the
// group netops. It writes its issuer to standard output, and ends when its standard input does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// users are what the storage takes, and adds their groups to ID tokens.
type users struct {
	*storage.Storage

	groups string // of alice
}

var known = people{
	"subject-of-alice": {ID: "subject-of-alice", Username: "Alice@example.org", Password: "alice-password"},
	"subject-of-bob":   {ID: "subject-of-bob", Username: "bob", Password: "bob-password"},
}

type people map[string]*storage.User

func (p people) GetUserByID(id string) *storage.User { return p[id] }

func (p people) GetUserByUsername(name string) *storage.User {
	for _, user := range p {
		if user.Username == name {
			return user
		}
	}
	return nil
}

func (p people) ExampleClientID() string { return "service" }

func (u users) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, token op.IDTokenRequest, _ []string) error {
	user := known[token.GetSubject()]
	if user == nil {
		return errors.New("there is no such user")
	}
	info.Subject, info.PreferredUsername = user.ID, user.Username
	if user.ID == "subject-of-alice" {
		info.AppendClaims("groups", []string{"everybody", u.groups})
	}
	return nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	redirect := flag.String("redirect", "", "URL that the client is led back to")
	groups := flag.String("group", "netops", "group of alice")
	flag.Parse()
	if err := run(*listen, *redirect, *groups); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, redirect, group string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	storage.RegisterClients(storage.WebClient("weir", "client-secret", redirect))
	issuer := "http://" + listener.Addr().String() + "/"
	handler := exampleop.SetupServer(issuer, users{storage.NewStorage(known), group}, slog.New(slog.DiscardHandler), false)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is waited for
		server.Close()
	}()
	fmt.Println(issuer)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
