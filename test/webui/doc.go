// Package webui opens a manager's web page in a browser: web/e2e, by Playwright and the chromium of the distribution.
package webui
