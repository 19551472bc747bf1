// What random programs share: values of any type from a seed, and the log of each call, in
// which every value stands whole, so that what a trace cuts or leaves out can be checked too.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"unsafe"
)

type object map[string]any

type source struct{ state uint64 }

// splitmix64, Steele, Lea and Flood.
func (s *source) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *source) below(n int) int { return int(s.next() % uint64(n)) }

type node struct {
	V    int16
	Next *node
}

type digit int8

func (d digit) String() string { return strconv.Itoa(int(d)) }

type label struct {
	Text string
	N    uint32
}

func (l *label) String() string { return "label" }

type codeError struct {
	Code int
	Text string
}

func (e *codeError) Error() string { return fmt.Sprint(e.Code, " ", e.Text) }

type plainError struct{ Reason string }

func (e plainError) Error() string { return "plain: " + e.Reason }

func negate(i int) int { return -i }

func double(i int) int { return 2 * i }

var (
	errorType    = reflect.TypeOf((*error)(nil)).Elem()
	stringerType = reflect.TypeOf((*fmt.Stringer)(nil)).Elem()
	closed       = map[uintptr]bool{}
	out          = bufio.NewWriterSize(os.Stdout, 1<<16)
	calls        = 0
)

// fill sets what p points to.
func fill(s *source, p any) { fillValue(s, reflect.ValueOf(p).Elem(), 0) }

// number is small, at an edge or anything.
func (s *source) number() uint64 {
	switch s.below(4) {
	case 0:
		return uint64(s.below(300) - 150)
	case 1:
		return uint64(1)<<uint(s.below(64)) - uint64(s.below(3))
	}
	return s.next()
}

func (s *source) float() float64 {
	switch s.below(6) {
	case 0:
		edges := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, 5e-324, math.MaxFloat64}
		return edges[s.below(len(edges))]
	case 1:
		return float64(s.below(1000)) / 8
	}
	return math.Float64frombits(s.next())
}

func (s *source) text() string {
	pieces := []string{"a", "go", "\"", "\\", "ü", "語", "\x00", "\n", "\xff", " ", "\u2028", "long words in a row ", "😀"}
	kind, made := s.below(4), []byte{}
	for n := s.below(1 + s.below(30)); n > 0; n-- {
		switch kind {
		case 0:
			made = append(made, byte(s.next()))
		case 1:
			made = append(made, pieces[s.below(len(pieces))]...)
		default:
			made = append(made, byte('a'+s.below(26)))
		}
	}
	return string(made)
}

// count is a number of elements: seldom more than a trace shows.
func (s *source) count() int { return s.below(1 + s.below(14)) }

func fillValue(s *source, v reflect.Value, depth int) {
	if !v.CanSet() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	absent := s.below(4) == 0 || depth > 5
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(s.below(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(s.number()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(s.number())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(s.float())
	case reflect.Complex64, reflect.Complex128:
		v.SetComplex(complex(s.float(), s.float()))
	case reflect.String:
		v.SetString(s.text())
	case reflect.Array:
		for i := 0; i < v.Len(); i++ {
			fillValue(s, v.Index(i), depth+1)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			if v.Type().Field(i).Name != "_" {
				fillValue(s, v.Field(i), depth+1)
			}
		}
	case reflect.Func:
		all := []any{negate, double}
		if f := reflect.ValueOf(all[s.below(2)]); !absent {
			v.Set(f)
		}
	case reflect.UnsafePointer:
		if !absent {
			v.SetPointer(unsafe.Pointer(new(int64)))
		}
	case reflect.Interface:
		if held := s.held(v.Type(), depth); held != nil {
			v.Set(reflect.ValueOf(held))
		}
	default:
		v.Set(reflect.Zero(v.Type()))
		if !absent {
			fillReference(s, v, depth)
		}
	}
}

func fillReference(s *source, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(s, v.Elem(), depth+1)
	case reflect.Slice:
		n := s.count()
		v.Set(reflect.MakeSlice(v.Type(), n, n+s.below(3)))
		for i := 0; i < n; i++ {
			fillValue(s, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for n := s.count(); n > 0; n-- {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fillValue(s, key, depth+1)
			fillValue(s, value, depth+1)
			v.SetMapIndex(key, value)
		}
		for _, key := range v.MapKeys() {
			if s.below(5) == 0 {
				v.SetMapIndex(key, reflect.Value{})
			}
		}
	case reflect.Chan:
		made := reflect.MakeChan(reflect.ChanOf(reflect.BothDir, v.Type().Elem()), s.below(4))
		for n := s.below(1 + made.Cap()); n > 0; n-- {
			made.Send(reflect.Zero(v.Type().Elem()))
		}
		if s.below(3) == 0 {
			made.Close()
			closed[made.Pointer()] = true
			kept = append(kept, made.Interface())
		}
		v.Set(made.Convert(v.Type()))
	}
}

// kept are the channels of closed: another one has not their address.
var kept []any

// held is what an interface of type t has in it.
func (s *source) held(t reflect.Type, depth int) any {
	choice := s.below(7)
	if depth > 5 {
		choice = 0
	}
	made := func(p any) any { fillValue(s, reflect.ValueOf(p).Elem(), depth+1); return p }
	switch {
	case choice == 0:
		return nil
	case t == stringerType && choice < 4:
		return digit(s.number())
	case t == stringerType:
		return made(new(label))
	case t == errorType:
		base := errors.New(s.text())
		switch choice {
		case 1:
			return base
		case 2:
			return fmt.Errorf("%s: %w", s.text(), base)
		case 3:
			return plainError{s.text()}
		case 4:
			return &fs.PathError{Op: s.text(), Path: s.text(), Err: base}
		}
		return made(new(codeError))
	}
	p := dynamics[s.below(len(dynamics))]()
	made(p)
	if choice == 1 {
		return p
	}
	return reflect.ValueOf(p).Elem().Interface()
}

func address(p uintptr) string { return "0x" + strconv.FormatUint(uint64(p), 16) }

func float(f float64, bits int) string { return strconv.FormatFloat(f, 'g', -1, bits) }

// show is a value with all that it leads to.
func show(v reflect.Value) object {
	switch v.Kind() {
	case reflect.Bool:
		return object{"k": "bool", "v": v.Bool()}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"k": "int", "v": strconv.FormatInt(v.Int(), 10)}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return object{"k": "int", "v": strconv.FormatUint(v.Uint(), 10)}
	case reflect.Float32, reflect.Float64:
		return object{"k": "float", "bits": v.Type().Bits(), "v": float(v.Float(), v.Type().Bits())}
	case reflect.Complex64, reflect.Complex128:
		c, bits := v.Complex(), v.Type().Bits()/2
		return object{"k": "complex", "bits": bits, "v": []string{float(real(c), bits), float(imag(c), bits)}}
	case reflect.String:
		return object{"k": "text", "hex": hex.EncodeToString([]byte(v.String()))}
	case reflect.Func:
		// What is passed is the address of a closure.
		return object{"k": "func", "v": function(v.Pointer()), "addr": address(*(*uintptr)(pointer(v)))}
	case reflect.UnsafePointer:
		return object{"k": "pointer", "addr": address(v.Pointer()), "to": nil}
	case reflect.Pointer:
		shown := object{"k": "pointer", "addr": address(v.Pointer()), "to": nil}
		if !v.IsNil() {
			shown["to"] = show(v.Elem())
		}
		return shown
	case reflect.Slice:
		return object{"k": "list", "cap": v.Cap(), "items": items(v), "bytes": v.Type().Elem().Kind() == reflect.Uint8}
	case reflect.Array:
		return object{"k": "list", "items": items(v), "bytes": v.Type().Elem().Kind() == reflect.Uint8}
	case reflect.Struct:
		members := []any{}
		for i := 0; i < v.NumField(); i++ {
			members = append(members, []any{v.Type().Field(i).Name, show(v.Field(i))})
		}
		return object{"k": "struct", "members": members}
	case reflect.Map:
		entries := []any{}
		// NaN is found by no look-up, only by a walk.
		for found := v.MapRange(); found.Next(); {
			entries = append(entries, []any{show(found.Key()), show(found.Value())})
		}
		return object{"k": "map", "addr": address(v.Pointer()), "entries": entries}
	case reflect.Chan:
		return object{"k": "chan", "addr": address(v.Pointer()), "len": v.Len(), "cap": v.Cap(), "closed": closed[v.Pointer()]}
	case reflect.Interface:
		return face(v)
	}
	panic("no form for " + v.Type().String())
}

func function(code uintptr) string {
	if code == 0 {
		return ""
	}
	return runtime.FuncForPC(code).Name()
}

func items(v reflect.Value) []any {
	made := []any{}
	for i := 0; i < v.Len(); i++ {
		made = append(made, show(v.Index(i)))
	}
	return made
}

func face(v reflect.Value) object {
	if v.IsNil() {
		return object{"k": "interface", "dyn": ""}
	}
	held := v.Elem()
	shown := object{"k": "interface", "dyn": held.Type().String(), "value": show(held)}
	if err, ok := reflect.NewAt(v.Type(), pointer(v)).Elem().Interface().(error); ok && !(held.Kind() == reflect.Pointer && held.IsNil()) {
		shown["error"] = hex.EncodeToString([]byte(err.Error()))
	}
	// The data word, which is an address unless it is the value.
	words := (*[2]uintptr)(pointer(v))
	shown["data"] = address(words[1])
	return shown
}

// pointer is where a value lies, or a copy of it.
func pointer(v reflect.Value) unsafe.Pointer {
	if v.CanAddr() {
		return unsafe.Pointer(v.UnsafeAddr())
	}
	copied := reflect.New(v.Type())
	copied.Elem().Set(v)
	return copied.UnsafePointer()
}

// emit logs a call; what is passed are pointers to the values.
func emit(name string, args []string, given []any, results []string, got []any) {
	list := func(names []string, all []any) []any {
		made := []any{}
		for i, p := range all {
			v := reflect.ValueOf(p).Elem()
			shown := show(v)
			shown["name"], shown["type"] = names[i], v.Type().String()
			made = append(made, shown)
		}
		return made
	}
	print(object{"type": "truth", "func": name, "args": list(args, given), "results": list(results, got)})
	calls++
}

func print(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Write(append(text, '\n'))
}

// apart runs f on a goroutine of its own, whose stack is small.
func apart(f func()) {
	done := make(chan bool)
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

//go:noinline
func touch(p *byte, n int) { *p = byte(n) }

func main() {
	seed := flag.Uint64("seed", 1, "of the values")
	n := flag.Int("n", 1000, "calls")
	flag.Parse()
	s := &source{*seed}
	for calls < *n {
		for _, call := range all {
			call(s)
		}
	}
	print(object{"type": "done", "calls": calls})
	out.Flush()
}
