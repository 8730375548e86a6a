package command

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

func TestReadMethod(t *testing.T) {
	for value, want := range map[string]Method{
		"":                   {},
		"none":               {},
		"NONE":               {},
		"None":               {},
		"/x $job_pid; y":     {Command: "/x $job_pid; y"},
		"/":                  {Command: "/"},
		"SIGTERM":            {Signal: unix.SIGTERM},
		"SIGKILL":            {Signal: unix.SIGKILL},
		"SIGUSR1":            {Signal: unix.SIGUSR1},
		"SIGIOT":             {Signal: unix.SIGABRT},
		"1":                  {Signal: 1},
		"15":                 {Signal: unix.SIGTERM},
		"64":                 {Signal: 64},
		"SIGNONE":            {Signal: -1},
		"SIG":                {Signal: -1},
		"SIG9":               {Signal: -1},
		"SIGSIGTERM":         {Signal: -1},
		"sigterm":            {Signal: -1},
		"SIGterm":            {Signal: -1},
		"XYZTERM":            {Signal: -1},
		"TERM":               {Signal: -1},
		"0":                  {Signal: -1},
		"65":                 {Signal: -1},
		"-9":                 {Signal: -1},
		"+9":                 {Signal: -1},
		"9 ":                 {Signal: -1},
		" /x":                {Signal: -1},
		"x":                  {Signal: -1},
		"$sge_root/x":        {Signal: -1},
		"999999999999999999": {Signal: -1},
	} {
		got, err := ReadMethod(spool.KeySuspendMethod, config(t, "suspend_method="+value))
		if want.Signal == -1 {
			if want := `cannot convert suspend_method "` + value + `" into a valid signal number at this machine`; text(err) != want || got != (Method{}) {
				t.Errorf("ReadMethod(%q) = %+v, %v; want %s", value, got, err, want)
			}
		} else if got != want || err != nil {
			t.Errorf("ReadMethod(%q) = %+v, %v; want %+v", value, got, err, want)
		}
	}
	if got, err := ReadMethod(spool.KeyTerminateMethod, config(t)); got != (Method{}) || err != nil {
		t.Errorf("ReadMethod without the key = %+v, %v", got, err)
	}
}

func TestReadNotification(t *testing.T) {
	usual := Notification{60 * time.Second, unix.SIGUSR2, unix.SIGUSR1}
	for _, test := range []struct {
		name  string
		lines []string
		want  Notification
		err   string
	}{
		{"off", []string{"notify=0", "notify_kill_type=0", "notify_kill=x"}, Notification{}, ""},
		{"negative", []string{"notify=-1"}, Notification{}, ""},
		{"usual", []string{"notify=60", "notify_kill_type=1", "notify_kill=TERM", "notify_susp_type=1", "notify_susp=default"}, usual, ""},
		{"without types", []string{"notify=60"}, usual, ""},
		{"empty types", []string{"notify=60", "notify_kill_type=", "notify_susp_type=", "notify_susp=x"}, usual, ""},
		{"name", []string{"notify=60", "notify_kill_type=0", "notify_kill=TERM"}, Notification{60 * time.Second, unix.SIGTERM, unix.SIGUSR1}, ""},
		{"number", []string{"notify=60", "notify_susp_type=0", "notify_susp=12"}, Notification{60 * time.Second, unix.SIGUSR2, unix.SIGUSR2}, ""},
		{"none", []string{"notify=60", "notify_kill_type=2", "notify_kill=TERM", "notify_susp_type=2"}, Notification{After: 60 * time.Second}, ""},
		{"infinity", []string{"notify=4294967295"}, Notification{4294967295 * time.Second, unix.SIGUSR2, unix.SIGUSR1}, ""},
		{"long", []string{"notify=9223372036854775807"}, Notification{4294967296 * time.Second, unix.SIGUSR2, unix.SIGUSR1}, ""},
		{"missing", nil, Notification{}, `can't get configuration value for "notify"`},
		{"no number", []string{"notify=x"}, Notification{}, `cannot parse config: notify is no number: "x"`},
		{"bad type", []string{"notify=60", "notify_kill_type=3"}, Notification{}, `cannot use notify_kill_type "3": it is neither 0, 1 nor 2`},
		{"bad kill", []string{"notify=60", "notify_kill_type=0", "notify_kill=default"}, Notification{}, `cannot use notify_kill "default": there is no such signal`},
		{"bad suspend", []string{"notify=60", "notify_susp_type=0", "notify_susp=0"}, Notification{}, `cannot use notify_susp "0": there is no such signal`},
		{"no suspend", []string{"notify=60", "notify_susp_type=0"}, Notification{}, `can't get configuration value for "notify_susp"`},
	} {
		if got, err := ReadNotification(config(t, test.lines...)); got != test.want || text(err) != test.err {
			t.Errorf("%s: %+v, %v; want %+v, %s", test.name, got, err, test.want, test.err)
		}
	}
}
