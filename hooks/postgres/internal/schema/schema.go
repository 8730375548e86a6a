// Package schema holds what paddock-pg has in a database, as numbered migrations, and brings a
// database to the newest.
//
// Packages engine and people import it. A migration that was released does not change any more: what is to be
// different is another migration.
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed *.sql
var files embed.FS

// Newest is the number of the last migration, which this program was made for. It also works with the
// one before, so that programs and database need not change at the same moment.
const Newest = 4

// lock is the advisory lock of whoever migrates.
const lock = 7263000

// A step is what is run in one transaction.
type step struct {
	number int // 0: what has to be there before the first migration
	sql    string
}

func steps() []step {
	all := []step{{0, read("bootstrap.sql")}}
	for n := 1; n <= Newest; n++ {
		all = append(all, step{n, "set local role paddock_owner;\nset local search_path = paddock, pg_temp;\n\n" +
			read(fmt.Sprintf("%03d.sql", n)) + fmt.Sprintf("\ninsert into migration (number) values (%d);\n", n)})
	}
	return all
}

func read(name string) string {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}

// Script returns all steps as a script of psql.
func Script() string {
	var b strings.Builder
	for _, s := range steps() {
		fmt.Fprintf(&b, "begin;\n\n%s\ncommit;\n\n", s.sql)
	}
	return b.String()
}

// Version returns the number of the last migration that a database has, 0 if it has none.
func Version(ctx context.Context, db *pgx.Conn) (n int, err error) {
	var there bool
	if err := db.QueryRow(ctx, "select to_regclass('paddock.migration') is not null").Scan(&there); err != nil || !there {
		return 0, err
	}
	return n, db.QueryRow(ctx, "select coalesce(max(number), 0) from paddock.migration").Scan(&n)
}

// Migrate makes the migrations that a database has not had yet, up to a number, each in a transaction of
// its own, and returns their numbers. Work goes on meanwhile.
func Migrate(ctx context.Context, db *pgx.Conn, upTo int) (made []int, err error) {
	if _, err := db.Exec(ctx, "select pg_advisory_lock($1)", lock); err != nil {
		return nil, err
	}
	defer func() { _, _ = db.Exec(ctx, "select pg_advisory_unlock($1)", lock) }()
	has, err := Version(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, s := range steps() {
		if s.number > upTo || s.number > 0 && s.number <= has || s.number == 0 && has > 0 {
			continue
		}
		// The simple protocol has several statements in one string.
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, s.sql, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err != nil {
			return made, fmt.Errorf("migration %d: %w", s.number, err)
		}
		if s.number > 0 {
			made = append(made, s.number)
		}
	}
	return made, nil
}
