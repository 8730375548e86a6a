// Package slot is what a slot of this host does and why: its states and
// activities, the table of its transitions, the policy of its owner, and the
// clocks of retirement, vacating and killing. It is HTCondor's, so that policies
// written for that mean the same here.
//
// It is pure. A Machine is given events with the time, and returns what is to be
// done; it has no clock, goroutine, lock or file. Next is zero unless something
// depends on time. Package claim drives it,
// and fetch asks it what to do with work; it imports classad and nothing of
// execd.
//
// slot(7) describes it, with the table made from the one here.
package slot

//go:generate go test -run ^TestPage$ -update .
