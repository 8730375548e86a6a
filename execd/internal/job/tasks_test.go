package job

import (
	"math/rand/v2"
	"slices"
	"testing"

	"paddock/execd/api"
)

func collect(s *Tasks) []int {
	var list []int
	for n := range s.All {
		list = append(list, n)
	}
	return list
}

func TestTasksFormat(t *testing.T) {
	for _, tt := range []struct {
		of     api.Tasks
		remove []int
		want   string
	}{
		{api.Tasks{}, nil, ""},
		{api.Tasks{First: 1, Last: 6, Step: 1}, nil, "1-6:1"},
		{api.Tasks{First: 1, Last: 6, Step: 1}, []int{1}, "2-6:1"},
		{api.Tasks{First: 1, Last: 6, Step: 1}, []int{3}, "1,2,4-6:1"},
		{api.Tasks{First: 1, Last: 5, Step: 2}, []int{1}, "3,5"},
		{api.Tasks{First: 3, Last: 9, Step: 2}, nil, "3-9:2"},
		{api.Tasks{First: 3, Last: 9, Step: 2}, []int{5}, "3,7,9"},
		{api.Tasks{First: 7, Last: 7, Step: 1}, nil, "7"},
	} {
		s := AllTasks(tt.of)
		for _, n := range tt.remove {
			if !s.Remove(n) {
				t.Errorf("Remove(%d) of %v = false; want true", n, tt.of)
			}
		}
		if got := s.String(); got != tt.want {
			t.Errorf("tasks %v without %v = %q; want %q", tt.of, tt.remove, got, tt.want)
		}
	}
}

// The set is compared with a plain map under random changes.
func TestTasksAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		of := api.Tasks{First: 1 + rnd.IntN(5), Step: 1 + rnd.IntN(3)}
		of.Last = of.First + rnd.IntN(60)
		set, model := AllTasks(of), map[int]bool{}
		for n := of.First; n <= of.Last; n += of.Step {
			model[n] = true
		}
		for range 100 {
			n := rnd.IntN(of.Last + 5)
			inRange := n >= of.First && n <= of.Last && (n-of.First)%of.Step == 0
			switch rnd.IntN(5) {
			case 0, 1:
				if got := set.Remove(n); got != model[n] {
					t.Fatalf("Remove(%d) = %v; want %v", n, got, model[n])
				}
				delete(model, n)
			case 2, 3:
				set.Add(n)
				if inRange {
					model[n] = true
				}
			case 4:
				cut := api.Tasks{First: 1 + n, Last: 1 + n + rnd.IntN(10), Step: 1 + rnd.IntN(3)}
				taken := set.Cut(cut)
				var want []int
				for m := range model {
					if m >= cut.First && m <= cut.Last && (m-cut.First)%cut.Step == 0 {
						want = append(want, m)
						delete(model, m)
					}
				}
				slices.Sort(want)
				if got := collect(&taken); !slices.Equal(got, want) || taken.Len() != len(want) {
					t.Fatalf("Cut(%v) of %v = %v (Len %d); want %v", cut, of, got, taken.Len(), want)
				}
			}
			var want []int
			for m := range model {
				want = append(want, m)
			}
			slices.Sort(want)
			if got := collect(&set); !slices.Equal(got, want) || set.Len() != len(want) {
				t.Fatalf("tasks = %v (Len %d); want %v", got, set.Len(), want)
			}
			if set.Len() > 0 {
				back, ok := parseTasks(set.format(), of)
				if !ok || !slices.Equal(collect(&back), want) {
					t.Fatalf("parseTasks(%q) = %v, %v; want %v", set.format(), collect(&back), ok, want)
				}
			}
		}
	}
}

func TestMillionTasksAreSmall(t *testing.T) {
	s := AllTasks(api.Tasks{First: 1, Last: 1_000_000, Step: 1})
	for range 1000 {
		s.Remove(s.Min())
	}
	if len(s.runs) != 1 || s.Len() != 999_000 {
		t.Errorf("a million tasks less a thousand: %d runs, Len %d; want 1, 999000", len(s.runs), s.Len())
	}
}

func FuzzParseTasks(f *testing.F) {
	f.Add("1-6:1")
	f.Add("1,3-5:2")
	f.Add("")
	of := api.Tasks{First: 1, Last: 99, Step: 2}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := parseTasks(text, of)
		if !ok {
			return
		}
		back, ok := parseTasks(s.format(), of)
		if !ok || !slices.Equal(collect(&s), collect(&back)) {
			t.Errorf("parseTasks(%q) = %v, written back %q", text, collect(&s), s.format())
		}
	})
}

func TestOnly(t *testing.T) {
	for _, tc := range []struct {
		list string
		of   api.Tasks
		want string
		n    int // 0: it is refused
	}{
		{"3,7,9-12", api.Tasks{First: 3, Last: 12, Step: 1}, "3,7,9-12:1", 6},
		{"9-12:2,3,3-5:2,10", api.Tasks{First: 3, Last: 12, Step: 1}, "3,5,9-11:1", 5},
		{"5,1-3:2", api.Tasks{First: 1, Last: 9, Step: 2}, "1-5:2", 3},
		{"1-9:4", api.Tasks{First: 1, Last: 9, Step: 2}, "1,5,9", 3},
		{"1-10:2", api.Tasks{First: 1, Last: 9, Step: 2}, "", 5},
		{"3-4,1-2", api.Tasks{First: 1, Last: 4, Step: 1}, "", 4},
		{"1-1000000:2,2-1000000:2", api.Tasks{First: 1, Last: 1000000, Step: 1}, "", 0},
		{"1-3", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"2", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"11", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"1,", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
		{"5-3", api.Tasks{First: 1, Last: 9, Step: 2}, "", 0},
	} {
		got, n, err := Only(tc.list, tc.of)
		if got != tc.want || n != tc.n || (err != nil) != (tc.n == 0) {
			t.Errorf("Only(%q, %v) = %q, %d, %v; want %q, %d", tc.list, tc.of, got, n, err, tc.want, tc.n)
		}
	}
}
