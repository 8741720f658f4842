// Package typo guesses what was meant by a name that nothing bears.
package typo
