package fetch

import (
	"context"
	"fmt"

	"paddock/classad"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
)

// Owners decide as whom fetched work runs.
type Owners struct {
	Users asuser.Users
	// Self is the uid that alone may run anything, in user mode; -1 in root mode.
	Self int
}

// of returns the user that an ad's Owner is, see source.Owner. In user mode there is one
// user, whomever the ad names, as in HTCondor.
func (o *Owners) of(ctx context.Context, ad *classad.Ad, c *conf.Config) (*user.User, error) {
	if o.Self >= 0 {
		return o.Users.ByID(ctx, o.Self)
	}
	name, ok := text(ad, attrOwner)
	if _, there := ad.Lookup(attrOwner); there && !ok {
		return nil, fmt.Errorf("its %s is no string", attrOwner)
	}
	if !ok {
		return nil, fmt.Errorf("it has no %s", attrOwner)
	}
	return source.Owner(ctx, o.Users, name, c.Knobs, c.Global.MinUID)
}
