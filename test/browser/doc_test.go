// Package browser_test looks at the live page in Chromium, by keyboard too, on large and small
// screens, in light and dark, and while locks change hands. site_test.go starts what serves the
// page, tab_test.go drives the browser. It is a module of its own, so that lockproxy does not
// depend on what speaks to browsers.
package browser_test
