// Paddock-pg makes a PostgreSQL database the queue of any number of hosts. It is the hooks by which execd gets
// work from there, see fetch(7), as a program for each call or as one that stays, and the command by which
// people use the queue.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"paddock/hooks/postgres/internal/engine"
	"paddock/hooks/postgres/internal/people"
	"paddock/hooks/postgres/internal/serve"
)

var version = "dev" // set by the linker

// hooks are those that it answers, each by its own name or as the first argument.
var hooks = []string{"FETCH_WORK", "REPLY_FETCH", "RENEW_CLAIM", "EVICT_CLAIM", "REPORT_WORK"}

func main() {
	args := os.Args[1:]
	config := ""
	if len(args) >= 2 && args[0] == "-config" {
		config, args = args[1], args[2:]
	}
	if name := filepath.Base(os.Args[0]); slices.Contains(hooks, name) {
		args = append([]string{name}, args...)
	}
	if len(args) == 0 && os.Getenv("PADDOCK_HOOK_SERVER") != "" {
		args = []string{"serve"} // execd gives a hook server no arguments
	}
	switch {
	case len(args) > 0 && args[0] == "serve":
		os.Exit(resident(config))
	case len(args) > 0 && slices.Contains(hooks, args[0]):
		os.Exit(once(config, args))
	default:
		os.Exit(people.Main(context.Background(), args, version))
	}
}

// untilTold returns a context that ends when the program is told to.
func untilTold() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
}

func log(text string) { fmt.Fprintln(os.Stderr, "paddock-pg: "+text) }

func start(config string) (*engine.Engine, error) {
	c, err := engine.ReadConfig(config)
	if err != nil {
		return nil, err
	}
	return engine.New(c, log)
}

// once answers one call of a hook.
func once(config string, args []string) int {
	ctx, stop := untilTold()
	defer stop()
	e, err := start(config)
	if err != nil {
		log(err.Error())
		return 78
	}
	defer e.Close()
	// It is less than half a gigabyte that execd passes, and it is read no further.
	input, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<28))
	if err != nil {
		log(err.Error())
		return 1
	}
	status, output, err := e.Answer(ctx, args[0], args[1:], input)
	if err != nil {
		log(fmt.Sprintf("%s: %v", args[0], err))
		return max(status, 1)
	}
	if _, err := os.Stdout.Write(output); err != nil {
		log(err.Error())
		return 1
	}
	return status
}

// resident is the hook server.
func resident(config string) int {
	ctx, stop := untilTold()
	defer stop()
	e, err := start(config)
	if err != nil {
		log(err.Error())
		time.Sleep(time.Second) // so that the reason is read before the next one is started
		return 78
	}
	defer e.Close()
	if err := serve.Run(ctx, e, os.Stdin, os.Stdout, version, log); err != nil {
		log(err.Error())
		return 1
	}
	return 0
}
