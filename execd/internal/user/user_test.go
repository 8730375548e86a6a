package user

import (
	"errors"
	"sync"
	"testing"
)

// Many who ask for the same at once get one answer, also that there is nobody, which is
// kept for a while.
func TestOneQuestionForAll(t *testing.T) {
	const nobodys = 3_111_222_333
	d := &Directory{}
	var wg sync.WaitGroup
	for _, uid := range []int{0, nobodys} {
		for range 50 {
			wg.Go(func() {
				switch u, err := d.ByID(t.Context(), uid); {
				case uid == 0 && (err != nil || u.Name != "root"):
					t.Errorf("user 0 is %+v, %v", u, err)
				case uid != 0 && !errors.Is(err, ErrUnknown):
					t.Errorf("user %d is %+v, %v; want unknown", uid, u, err)
				}
			})
		}
	}
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) != 2 || len(d.asked) != 0 {
		t.Errorf("%d answers are kept, %d questions are open; want 2 and none", len(d.known), len(d.asked))
	}
}
