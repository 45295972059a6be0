// Package lockinfo describes a lock for people: who holds it, since when, and who waits.
//
// An Info is what people are shown of one. Read makes it of info.lua's reply, OfForeign of what
// this proxy has seen of a foreign lock, and held.Lock.Info of a lock that this proxy has given.
// ReadProxies are the proxies that info.lua lists as waiting.
package lockinfo
