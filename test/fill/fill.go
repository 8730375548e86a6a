// Package fill gives values to all fields of a value, for tests that hold a place which
// must know every field of a type. A field that is added is tried there without
// anybody's remembering. Tests alone import it.
package fill

import (
	"fmt"
	"reflect"
	"time"
)

// All sets every exported field below a pointer to something that is not zero.
func All(pointer any) { fill(reflect.ValueOf(pointer).Elem()) }

// Fields calls do for each field of a struct, by the name that it has in JSON, with a
// value of that type in which nothing else is set.
func Fields[T any](do func(name string, with *T)) {
	for i := range reflect.TypeFor[T]().NumField() {
		with := new(T)
		fill(reflect.ValueOf(with).Elem().Field(i))
		do(Name(reflect.TypeFor[T]().Field(i)), with)
	}
}

// Name returns the name of a field in JSON; empty: its fields stand in its place.
func Name(f reflect.StructField) string {
	name := f.Tag.Get("json")
	for i := range len(name) {
		if name[i] == ',' {
			return name[:i]
		}
	}
	return name
}

func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	default:
		panic(fmt.Sprintf("fill: no value for a %v", v.Type()))
	}
}
