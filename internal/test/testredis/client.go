package testredis

import (
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testwait"
)

// Patient makes a go-redis client wait as long as tests do. By itself it gives up a connection after
// 5 s, and an answer after 3 s, and sends the command once more.
func Patient(o *redis.Options) *redis.Options {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = testwait.Patience,
		testwait.Patience, testwait.Patience, testwait.Patience
	return o
}
