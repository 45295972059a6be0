package cluster

import (
	"strings"

	"lockproxy/internal/commands"
)

func init() { // not in table's declaration: some handlers look commands up
	handlers := handlersByName()
	for i := range commands.Rows {
		row := &commands.Rows[i]
		cmd := command{Command: row, route: toDefault, join: joiners[row.Join]}
		switch {
		case handlers[row.Name] != nil:
			cmd.route = handlers[row.Name]
		case row.Sets:
			cmd.route = set
		case row.Refused != "":
			cmd.route = refuse
		case row.Nodes.Several():
			cmd.route = toMasters
		case row.Keys.Any():
			cmd.route = byKeys
		}
		table = append(table, cmd)
	}
}

// handlersByName is the commands that need special code.
func handlersByName() map[string]func(*Conn, *query) {
	byName := map[string]func(*Conn, *query){}
	for names, handler := range map[string]func(*Conn, *query){
		"debug":     debug,
		"scan":      scan,
		"randomkey": randomKey,
		"info":      info,
		"cluster|countkeysinslot cluster|getkeysinslot cluster|flushslot": bySlot,
		"readonly readwrite asking":                                       answerOK,
		"quit":                                                            quit,
		"post host:":                                                      closes,

		"client|tracking client|tracking|on client|tracking|off": tracking,
		"client|caching": clientCaching,
		"client|id":      clientID,
		"client|info":    clientInfo,
		"client|list":    clientList,
		"client|kill":    clientKill,
		"client|unblock": clientUnblock,

		"multi":   multi,
		"watch":   watch,
		"unwatch": unwatch,

		"subscribe psubscribe unsubscribe punsubscribe": subscribe,
		"ssubscribe":   subscribeSharded,
		"sunsubscribe": unsubscribeSharded,
		"publish pubsub|channels pubsub|numpat pubsub|numsub": toChannels,
		"wait waitaof":      wait,
		"monitor":           monitor,
		"lockproxy.wait":    waitAtKey,
		"lockproxy.unblock": unblockRights,
	} {
		for name := range strings.FieldsSeq(names) {
			byName[name] = handler
		}
	}
	return byName
}

var joiners = map[commands.Join]joiner{
	commands.First: joinFirst, commands.Sum: joinSum, commands.Min: joinMin, commands.Max: joinMax,
	commands.MinEach: joinMinEach, commands.SumEach: joinSumEach, commands.Elements: joinAll,
	commands.Distinct: joinDistinct,
}
