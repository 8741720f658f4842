package trust

import (
	"errors"
	"fmt"

	"github.com/weirlb/weir/internal/model"
)

// Account is a user as the store has it.
type Account struct {
	Name     string    `json:"name"`
	Bindings []Binding `json:"bindings"`
	Hash     []byte    `json:"hash,omitempty"` // of the bearer token
	// Subject names the person that a provider of OpenID Connect signs in. Without it and Hash the user has a certificate.
	Subject string `json:"subject,omitempty"`
	// Revoked says so of a person, whom a provider would sign in again: a new CA forgets the principals.
	Revoked bool `json:"revoked,omitempty"`
}

// Method is how the user proves who it is.
func (a Account) Method() Method {
	switch {
	case a.Subject != "":
		return ByProvider
	case len(a.Hash) > 0:
		return ByToken
	}
	return ByCertificate
}

// Validate says what is wrong with the account.
func (a Account) Validate() error {
	var errs []error
	if !model.ValidName(a.Name) {
		errs = append(errs, &model.FieldError{Field: "name", Reason: fmt.Sprintf("must be a DNS label, is %.70q", a.Name)})
	}
	if len(a.Bindings) == 0 {
		errs = append(errs, &model.FieldError{Field: "bindings", Reason: "must have at least one"})
	}
	for i, b := range a.Bindings {
		for _, err := range model.FieldErrors(b.Validate()) {
			errs = append(errs, &model.FieldError{Field: fmt.Sprintf("bindings[%d].%s", i, err.Field), Reason: err.Reason})
		}
	}
	return errors.Join(errs...)
}
