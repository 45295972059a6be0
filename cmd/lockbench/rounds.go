package main

import (
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/stat"
)

// over is a figure of every round.
func over[R any, T any](rounds []R, figure func(R) T) []T {
	values := make([]T, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	return values
}

// middle formats the median of a figure over the rounds.
func middle[R any](rounds []R, format string, figure func(R) float64) string {
	return fmt.Sprintf(format, stat.Median(over(rounds, figure)))
}

// spread formats the median of a figure, and its least and greatest in any round.
func spread[R any](rounds []R, format string, figure func(R) float64) string {
	return stat.Of(over(rounds, figure)).Format(format)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// per divides, and gives 0 for what didn't happen.
func per(amount float64, times int) float64 {
	if times == 0 {
		return 0
	}
	return amount / float64(times)
}
