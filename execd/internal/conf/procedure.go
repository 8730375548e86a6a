package conf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/spool"
)

// These are the variables of commands: of procedures, which run before and after a job,
// and of methods, which act on a running job. Each is a key in the job's config.
var (
	procedureVariables = slices.Concat(commonVariables, []string{
		"processors", "stdin_path", "stdout_path", "stderr_path", "merge_stderr",
		"fs_stdin_host", "fs_stdin_path", "fs_stdin_tmp_path", "fs_stdin_file_staging",
		"fs_stdout_host", "fs_stdout_path", "fs_stdout_tmp_path", "fs_stdout_file_staging",
		"fs_stderr_host", "fs_stderr_path", "fs_stderr_tmp_path", "fs_stderr_file_staging",
	})
	methodVariables = slices.Concat(commonVariables, []string{"job_pid"})
	peVariables     = slices.Concat(procedureVariables, []string{"pe", "pe_slots", "pe_hostfile"})
	ckptVariables   = slices.Concat(methodVariables, []string{"ckpt_dir", "ckpt_signal"})
	commonVariables = []string{
		"host", "ja_task_id", "job_owner", "job_id", "job_name", "queue", "sge_root", "sge_cell",
	}
)

// setProcedure reads NONE or [user@]/path arguments, for a prolog or an epilog.
func setProcedure(into *string, v string) error { return setCommand(into, v, procedureVariables) }

// setCommand is setProcedure with other variables.
func setCommand(into *string, v string, variables []string) error {
	if isNone(v) {
		return nil
	}
	user, command, other := SplitProcedure(v)
	if other && user == "" {
		return errors.New("no user before the @")
	}
	if err := checkCommand(command, variables); err != nil {
		return err
	}
	*into = v
	return nil
}

// SplitProcedure splits [user@]/path arguments. other reports whether a user is named;
// without one the procedure runs as the job's owner.
func SplitProcedure(v string) (user, command string, other bool) {
	user, command, other = strings.Cut(v, "@")
	if !other || strings.ContainsAny(user, "/ \t") { // the @ is in an argument
		return "", v, false
	}
	return user, command, true
}

// setMethod reads NONE, SIGxxx, the number of a signal, or /path arguments.
func setMethod(into *string, v string) error {
	if isNone(v) {
		return nil
	}
	if strings.HasPrefix(v, "/") {
		if err := checkCommand(v, methodVariables); err != nil {
			return err
		}
		*into = v
		return nil
	}
	if strings.Trim(v, "0123456789") == "" {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > maxSignal {
			return fmt.Errorf("%s is not the number of a signal", v)
		}
		*into = v
		return nil
	}
	// SIG must be there: Grid Engine's shepherd removes three letters, whatever they are.
	if _, ok := spool.SignalNumber(v); !ok || !strings.HasPrefix(v, "SIG") {
		return fmt.Errorf("%q is neither NONE nor a signal (SIGTERM, 15) nor an absolute path", v)
	}
	*into = v
	return nil
}

// maxSignal is the number of SIGRTMAX.
const maxSignal = 64

// setWarning reads default, none, or a signal, with or without SIG.
func setWarning(into *Warning, v string) error {
	switch {
	case strings.EqualFold(v, "default"):
		*into = Warning{}
	case isNone(v):
		*into = Warning{Off: true}
	default:
		if _, ok := spool.SignalNumber(v); !ok {
			return fmt.Errorf("%q is neither a signal nor none nor default", v)
		}
		*into = Warning{Signal: strings.TrimPrefix(v, "SIG")}
	}
	return nil
}

// checkCommand checks /path arguments: a mistake that only the shepherd found would
// fail every job.
func checkCommand(v string, variables []string) error {
	path, _, _ := strings.Cut(strings.ReplaceAll(v, "\t", " "), " ")
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	return checkVariables(v, variables)
}

// checkVariables checks the variables in a command.
func checkVariables(v string, variables []string) error {
	if !spool.PlainValue(v) {
		return errors.New("contains a control character, or is too long")
	}
	for text := v; ; {
		_, after, found := strings.Cut(text, "$")
		if !found {
			return nil
		}
		text = strings.TrimLeft(after, variableLetters)
		name := after[:len(after)-len(text)]
		switch {
		case name == "":
			return errors.New("a $ without the name of a variable behind it")
		case !slices.Contains(variables, name):
			return fmt.Errorf("unknown variable $%s%s", name, suggest(variables, name, "$"))
		}
	}
}

// variableLetters are the letters of names of variables.
const variableLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// maxTime bounds times to 32 bits, as Grid Engine's shepherd reads them.
const maxTime = 1<<31 - 1

// setTime reads a time: seconds, or h:m:s.
func setTime(into *time.Duration, v string) error {
	seconds, err := spool.ParseLimit(v)
	if err != nil || strings.Trim(v, "0123456789:") != "" {
		return fmt.Errorf("%q is not a time: want seconds or h:m:s", v)
	}
	if seconds > maxTime {
		return fmt.Errorf("%s is too long, at most %d s are possible", v, maxTime)
	}
	*into = time.Duration(seconds) * time.Second
	return nil
}

// ParseTime reads a time: seconds, or h:m:s.
func ParseTime(text string) (time.Duration, error) {
	var d time.Duration
	err := setTime(&d, text)
	return d, err
}

// setTimeLimit reads a time or INFINITY.
func setTimeLimit(into *time.Duration, v string) error {
	if strings.EqualFold(v, "INFINITY") {
		*into = 0
		return nil
	}
	if err := setTime(into, v); err != nil {
		return err
	}
	if *into == 0 {
		return errors.New("0 s would end every job at once; no limit is INFINITY")
	}
	return nil
}
