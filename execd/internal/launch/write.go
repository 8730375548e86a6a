package launch

import (
	"bytes"
	"context"
	"fmt"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/user"
)

// MaxWrite is the most that AppendAs and WriteAs write at once, in bytes.
const MaxWrite = 1 << 20

// AppendAs adds data to the end of a regular file of a user's choice, in one
// write under a lock, synced, with that user's rights alone. The file is made if
// it is not there. What does not fit on the disk leaves nothing behind. The end
// of ctx ends the wait for a file system that hangs; the data may then have been
// written or not.
func (l *Launcher) AppendAs(ctx context.Context, u *user.User, path string, data []byte) error {
	return l.writeAs(ctx, u, "-append", path, data)
}

// WriteAs replaces a file of a user's choice by data, whole or not at all and
// synced, with that user's rights alone. A link is replaced, not followed.
func (l *Launcher) WriteAs(ctx context.Context, u *user.User, path string, data []byte) error {
	return l.writeAs(ctx, u, "-write", path, data)
}

func (l *Launcher) writeAs(ctx context.Context, u *user.User, how, path string, data []byte) error {
	if len(data) > MaxWrite {
		return fmt.Errorf("cannot write %q: more than %d bytes", path, MaxWrite)
	}
	err := l.asUserWith(ctx, bytes.NewReader(data), nil, u.UID, u.GID, asuser.GroupList(u), how, path)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("cannot write %q: %w", path, context.Cause(ctx))
	}
	return err
}
