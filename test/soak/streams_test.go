package soak

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestStreams sends much through an interactive job and back: a gigabyte at full
// size.
func TestStreams(t *testing.T) {
	size := int64(part(1024, 64)) << 20
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin")}
	t.Cleanup(func() { s.cleanUp(t) })
	s.prepare(t)
	s.start(t)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "qrsh"), "cat")
	cmd.Env, cmd.Dir = append(os.Environ(), "PADDOCK_DIR="+s.dir), base
	sent, received := sha256.New(), sha256.New()
	cmd.Stdin = io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), sent)
	cmd.Stdout = received
	var diag bytes.Buffer
	cmd.Stderr = &diag
	begin := time.Now()
	if err := cmd.Run(); err != nil || diag.Len() > 0 {
		t.Fatalf("qrsh cat: %v, %q\n%s", err, diag.String(), s.log())
	}
	elapsed := time.Since(begin)
	if !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		t.Errorf("sent %x, received %x", sent.Sum(nil), received.Sum(nil))
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("%d MB through a job and back in %.1f s (%.0f MB/s each way), sum %x; qrsh used %.1f s of processor time and %d MB", size>>20,
		elapsed.Seconds(), float64(size>>20)/elapsed.Seconds(), received.Sum(nil), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), usage.Maxrss>>10)
}
