// Package matrix counts what clients send to VIPs, by the racks that the clients are in: Duet's traffic matrix. Agents
// estimate it by samples of what they deliver, and managers add up what agents report. Pure: no I/O, no clock.
//
//	sample ─▶ Count at an agent ─▶ rows of a report ─▶ Totals at its manager ─▶ whoever reads twice
package matrix
