// Package classad is the expression language in which slots, jobs and policies
// are described: ads, which are sets of named expressions, and what becomes of
// an expression when it is evaluated between two of them.
//
// Ads come from users and are evaluated by daemons. What an ad can cost is
// bounded when it is read and when it is evaluated, and there is no input that
// panics. Expressions and ads do not change once they are made.
//
// classad(7) describes the language. Everybody may import the package; it imports nothing else
// of the project.
package classad
