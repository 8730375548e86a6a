package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestGather has questions that come while a call is under way asked together in the next, each answered by its own answer,
// and each of a call that fails asked alone.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		g := newGather(func(_ context.Context, questions []int) ([]int, error) {
			calls = append(calls, questions)
			time.Sleep(time.Second)
			answers := make([]int, len(questions))
			for i, q := range questions {
				if q < 0 {
					return nil, errors.New("no")
				}
				answers[i] = 2 * q
			}
			return answers, nil
		})
		var all sync.WaitGroup
		ask := func(question int, fails bool) {
			all.Go(func() {
				answer, err := g.ask(question)
				if (err != nil) != fails || err == nil && answer != 2*question {
					t.Errorf("%d is answered by %d, %v", question, answer, err)
				}
			})
			synctest.Wait()
		}
		ask(1, false)
		for q := range mostTogether + 1 {
			ask(q, false)
		}
		all.Wait()
		ask(7, false)
		ask(8, false)
		ask(-1, true)
		all.Wait()
		ask(9, false)
		all.Wait()
		var sizes []int
		for _, c := range calls {
			sizes = append(sizes, len(c))
		}
		if got, want := fmt.Sprint(sizes), fmt.Sprint([]int{1, mostTogether, 1, 1, 2, 1, 1, 1}); got != want {
			t.Errorf("calls of %s questions; want %s", got, want)
		}
	})
}
