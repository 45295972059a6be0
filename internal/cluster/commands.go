package cluster

import (
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// command is how one command goes to the cluster.
type command struct {
	*commands.Command
	run func(c *Conn, q *query)
	// split is how a request whose keys are in several slots is taken apart; nil is not at all.
	split func(c *Conn, q *query, at []int)
	// join makes one reply out of those of several nodes.
	join joiner
}

// table is all of them, by ID.
var table []command

func init() { // not in the declaration, since some of the ways look commands up
	splits := map[string]func(c *Conn, q *query, at []int){"mget": splitMget, "mset": splitMset}
	ways := waysByName()
	for i := range commands.Rows {
		row := &commands.Rows[i]
		cmd := command{Command: row, run: toHome, join: joiners[row.Join]}
		switch {
		case ways[row.Name] != nil:
			cmd.run = ways[row.Name]
		case row.Refused != "":
			cmd.run = refuse
		case row.Nodes.Several():
			cmd.run = toMasters
		case row.Keys.Any():
			cmd.run = byKeys
		}
		if row.Nodes == commands.Split {
			if cmd.split = splits[row.Name]; cmd.split == nil {
				cmd.split = splitSum
			}
		}
		table = append(table, cmd)
	}
}

// waysByName are the ways of the commands that there is code for.
func waysByName() map[string]func(*Conn, *query) {
	byName := map[string]func(*Conn, *query){}
	for names, way := range map[string]func(*Conn, *query){
		"scan":      scan,
		"publish":   publish,
		"randomkey": randomKey,
		"cluster|countkeysinslot cluster|getkeysinslot": bySlot,
		"readonly readwrite asking":                     answerOK,
		"quit":                                          quit,
		"auth hello":                                    login,
		"client|setname client|setinfo|lib-name client|setinfo|lib-ver client|no-evict": tellAll,
		"client|no-touch client|tracking client|tracking|on client|tracking|off":        tellAll,
		"client|caching":           forNext,
		"reset":                    reset,
		"multi":                    multi,
		"watch":                    watch,
		"unwatch":                  unwatch,
		"subscribe psubscribe":     subscribe,
		"unsubscribe punsubscribe": subscribe,
		"ssubscribe":               subscribeSharded,
		"sunsubscribe":             unsubscribeSharded,
		"monitor":                  monitor,
		"lockproxy.wait":           waitAt,
	} {
		for name := range strings.FieldsSeq(names) {
			byName[name] = way
		}
	}
	return byName
}

var joiners = map[commands.Join]joiner{
	commands.First: joinFirst, commands.Sum: joinSum, commands.Min: joinMin, commands.Max: joinLargest,
	commands.MinEach: joinMinEach, commands.SumEach: joinSumEach,
	commands.Elements: joinAll, commands.Distinct: joinDistinct, commands.Text: joinText,
}

func refuse(c *Conn, q *query) {
	name := strings.ToUpper(strings.ReplaceAll(q.cmd.Name, "|", " "))
	c.local(resp.AppendError(nil, "ERR "+name+" can't be sent to a cluster as a whole: "+q.cmd.Refused+
		". Send it to that node directly"))
}

// lookup finds the command of a request.
func lookup(args [][]byte) *command { return &table[commands.Find(args[0]).For(args).ID] }

// headSlot is the slot of a request of which only the first arguments have come, of argc; ok is false
// if they don't tell.
func (cmd *command) headSlot(args [][]byte, argc int) (slot int, ok bool) {
	k := &cmd.Keys
	switch {
	case k.Movable() || cmd.Nodes.Several() || cmd.HasSubs():
		return 0, false
	case k.First == 0:
		return -1, true
	case k.Last < 0 && (k.First-1)%k.Step+k.First != argc-1 && argc-1 > k.First+k.Step-1:
		return 0, false
	case len(args) <= max(k.Last, k.First):
		return 0, false
	}
	slot = Slot(args[k.First])
	for i := k.First; i <= k.Last; i += k.Step {
		if Slot(args[i]) != slot {
			return 0, false
		}
	}
	return slot, true
}
