// Package webui opens a manager's web page in a browser: web/e2e, by Playwright and the chromium of the distribution. One
// cluster has managers in this process and nodes that are invented; the other is a lab, with Weir's programs and packets.
package webui
