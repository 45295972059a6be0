// Package monotonic tells the time as a number for an atomic.Int64. Steps of the machine's clock do
// not change it.
package monotonic
