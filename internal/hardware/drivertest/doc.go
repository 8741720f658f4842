// Package drivertest has the cases that every driver of a switch passes. A driver's test raises its switch and calls Run;
// cases of packets need a Path, which a driver that forwards nothing does not have.
package drivertest
