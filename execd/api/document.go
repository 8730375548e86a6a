package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Document returns a reply as commands print it for programs: one JSON text, indented
// and with a newline at its end, in which an empty list is [] and not null. Fields
// with omitzero are left out as usual. Document may change what reply points to.
func Document(reply any) ([]byte, error) {
	v := reflect.New(reflect.TypeOf(reply)).Elem()
	v.Set(reflect.ValueOf(reply))
	fillLists(v)
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v.Interface()); err != nil {
		return nil, err
	}
	return VisibleJSON(text.Bytes()), nil
}

// fillLists replaces nil lists in a value by empty ones.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !strings.HasSuffix(f.Tag.Get("json"), ",omitzero") {
				fillLists(v.Field(i))
			}
		}
	}
}
