package job

import (
	"fmt"
	"os"
	"reflect"
	"testing"
)

// TestMain looks after all tests whether what jobs share was written by none of them.
func TestMain(m *testing.M) {
	code := m.Run()
	if !reflect.ValueOf(noParticulars).IsZero() || fromQsub != (Origin{}) {
		fmt.Printf("FAIL: a job has written what others share: %+v, %+v\n", noParticulars, fromQsub)
		code = 1
	}
	os.Exit(code)
}
