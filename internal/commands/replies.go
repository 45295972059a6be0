package commands

// Subscriptions counts what a connection has subscribed to, by the confirmations that come on it.
type Subscriptions struct{ Channels, Patterns, Sharded int64 }

// All is the number of all subscriptions.
func (s *Subscriptions) All() int64 { return s.Channels + s.Patterns + s.Sharded }

// Confirmed takes over the count that a confirmation carries: channels and patterns together,
// sharded channels alone.
func (s *Subscriptions) Confirmed(kind Effect, total int64) {
	switch kind {
	case Subscribe, Unsubscribe:
		s.Channels = total - s.Patterns
	case PSubscribe, PUnsubscribe:
		s.Patterns = total - s.Channels
	case SSubscribe, SUnsubscribe:
		s.Sharded = total
	}
}

// Confirmations is how many confirmations a request gets that names some channels. A request that
// names none is about all channels, and gets one even if there are none.
func (s *Subscriptions) Confirmations(kind Effect, channels int) int {
	if channels > 0 {
		return channels
	}
	all := map[Effect]int64{
		Unsubscribe: s.Channels, PUnsubscribe: s.Patterns, SUnsubscribe: s.Sharded,
	}
	return max(1, int(all[kind]))
}

// Confirmation is what an array or a push confirms by its first element; NoEffect is nothing.
func Confirmation(elem []byte) Effect {
	if e := Find(elem).Effect; e.Subscribes() {
		return e
	}
	return NoEffect
}

// IsMessage reports whether an array or a push is a message by its first element.
func IsMessage(elem []byte) bool {
	return string(elem) == "message" || string(elem) == "pmessage" || string(elem) == "smessage"
}

// IsMonitorLine tells MONITOR's feed ("1700000000.123456 [0 127.0.0.1:5000] …") from a status
// reply.
func IsMonitorLine(line []byte) bool {
	i := 0
	for i < len(line) && line[i] >= '0' && line[i] <= '9' {
		i++
	}
	return i > 0 && len(line) > i+9 && line[i] == '.' && line[i+7] == ' ' && line[i+8] == '['
}
