package main

import (
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/stat"
)

// runs is what a job's cases came to, by round; nil is a run that failed.
type runs[R any] [][]*R

// keep records a run of case i, by t. If it failed, that is noted; an error ends the report.
func (r runs[R]) keep(b *bench, i int, t *target, name string, result *R, err error) error {
	if err != nil {
		result, err = nil, b.failed(t, name, err)
	}
	r[i] = append(r[i], result)
	return err
}

// figures is a figure of every round of case i.
func (r runs[R]) figures(i int, figure func(*R) float64) []float64 {
	return over(r[i], func(result *R) float64 {
		if result == nil {
			return stat.Failed
		}
		return figure(result)
	})
}

func (r runs[R]) spread(i int, figure func(*R) float64) stat.Spread {
	return stat.Of(r.figures(i, figure))
}

// ratio is of case i to the base in the same round.
func (r runs[R]) ratio(i, base int, figure func(*R) float64) stat.Spread {
	return stat.Of(stat.Ratios(r.figures(i, figure), r.figures(base, figure)))
}

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
