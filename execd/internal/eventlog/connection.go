package eventlog

// The events of a job on another host that does not answer.
const (
	NumberDisconnected    Number = 22
	NumberReconnected     Number = 23
	NumberReconnectFailed Number = 24
)

// Disconnected says that the host of a job does not answer. The job goes on there.
type Disconnected struct{ Host, Reason string }

// Reconnected says that the host of a job answers again.
type Reconnected struct{ Host string }

// ReconnectFailed says that a job is not waited for any more whose host does not answer.
type ReconnectFailed struct{ Host, Reason string }

func (Disconnected) number() Number    { return NumberDisconnected }
func (Reconnected) number() Number     { return NumberReconnected }
func (ReconnectFailed) number() Number { return NumberReconnectFailed }

func (Disconnected) typeName() string    { return "JobDisconnectedEvent" }
func (Reconnected) typeName() string     { return "JobReconnectedEvent" }
func (ReconnectFailed) typeName() string { return "JobReconnectFailedEvent" }

// Readers of these events look for four blanks where others have a tab.

func (b Disconnected) text(l *lines) {
	l.head("Job disconnected, attempting to reconnect")
	l.head("    %s", b.Reason)
	l.head("    Trying to reconnect to %s %s", b.Host, address(b.Host))
}

func (b Disconnected) attrs() []attr {
	return []attr{
		{"EventDescription", "Job disconnected, attempting to reconnect"},
		{"DisconnectReason", b.Reason},
		{"StartdName", b.Host},
		{"StartdAddr", address(b.Host)},
	}
}

func (b Reconnected) text(l *lines) {
	l.head("Job reconnected to %s", b.Host)
	l.head("    startd address: %s", address(b.Host))
	l.head("    starter address: %s", address(b.Host))
}

func (b Reconnected) attrs() []attr {
	return []attr{
		{"EventDescription", "Job reconnected"}, {"StartdName", b.Host}, {"StartdAddr", address(b.Host)}, {"StarterAddr", address(b.Host)},
	}
}

func (b ReconnectFailed) text(l *lines) {
	l.head("Job reconnection failed")
	l.head("    %s", b.Reason)
	l.head("    Can not reconnect to %s, rescheduling job", b.Host)
}

func (b ReconnectFailed) attrs() []attr {
	return []attr{
		{"EventDescription", "Job reconnect impossible: rescheduling job"}, {"Reason", b.Reason}, {"StartdName", b.Host},
	}
}
