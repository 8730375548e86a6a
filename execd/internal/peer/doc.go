// Package peer is the trust between hosts: the certificates by which they know each
// other (`execd -pool`), the file peers that says what each may do, the listener for
// those that may submit, and the client of those that execute. See peers(5) and
// paddock-pool(7).
//
// A Keeper has all that in force, and reads it again when it has changed. A Listener lets
// in connections of hosts with a certificate; what their requests may do is decided by
// package server, for each request anew. A Watch asks the hosts that execute how they do.
// Only daemon, server and main import it. Of execd it imports the api, and fair.
package peer
