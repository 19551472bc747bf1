// Prints the signatures of the functions and methods of the standard library, one a line: symbol,
// parameters with the receiver first, results; with tabs between them. Generic ones are left out, since
// what they take hangs on their instantiation, and so is the runtime, part of which has a convention
// of its own.
package main

import (
	"bufio"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"sort"
	"strings"
)

func main() {
	// The packages of the very toolchain that runs this.
	out, err := exec.Command("go", "list", "std").Output()
	if err != nil {
		fail("go list std", err)
	}
	importer := importer.ForCompiler(token.NewFileSet(), "source", nil).(types.ImporterFrom)
	root := os.Getenv("GOROOT_OF_LIST")
	var lines []string
	for _, path := range strings.Fields(string(out)) {
		if isRuntime(path) {
			continue
		}
		pkg, err := importer.ImportFrom(path, root, 0)
		if err != nil {
			fail(path, err)
		}
		lines = append(lines, ofPackage(pkg)...)
	}
	sort.Strings(lines)
	writer := bufio.NewWriter(os.Stdout)
	for _, line := range lines {
		fmt.Fprintln(writer, line)
	}
	if err := writer.Flush(); err != nil {
		fail("stdout", err)
	}
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "signatures: %s: %v\n", what, err)
	os.Exit(1)
}

func isRuntime(path string) bool {
	return path == "runtime" || path == "unsafe" ||
		strings.HasPrefix(path, "runtime/internal/") || strings.HasPrefix(path, "internal/runtime/")
}

func ofPackage(pkg *types.Package) []string {
	var lines []string
	for _, name := range pkg.Scope().Names() {
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			signature := object.Type().(*types.Signature)
			if signature.TypeParams().Len() == 0 {
				lines = append(lines, line(pkg.Path()+"."+name, signature))
			}
		case *types.TypeName:
			named, ok := object.Type().(*types.Named)
			if !ok || object.IsAlias() || named.TypeParams().Len() != 0 {
				continue
			}
			for i := 0; i < named.NumMethods(); i++ {
				method := named.Method(i)
				signature := method.Type().(*types.Signature)
				receiver := name
				if _, ok := signature.Recv().Type().(*types.Pointer); ok {
					receiver = "(*" + name + ")"
				}
				lines = append(lines, line(pkg.Path()+"."+receiver+"."+method.Name(), signature))
			}
		}
	}
	return lines
}

func line(symbol string, signature *types.Signature) string {
	var params, results []string
	add := func(v *types.Var, variadic bool) {
		name := v.Name()
		if name == "" {
			name = fmt.Sprintf("~p%d", len(params))
		}
		typ := v.Type()
		if variadic {
			params = append(params, name+" ..."+text(typ.(*types.Slice).Elem()))
			return
		}
		params = append(params, name+" "+text(typ))
	}
	if signature.Recv() != nil {
		add(signature.Recv(), false)
	}
	for i := 0; i < signature.Params().Len(); i++ {
		add(signature.Params().At(i), signature.Variadic() && i == signature.Params().Len()-1)
	}
	for i := 0; i < signature.Results().Len(); i++ {
		v := signature.Results().At(i)
		name := v.Name()
		if name == "" {
			name = fmt.Sprintf("~r%d", i)
		}
		results = append(results, name+" "+text(v.Type()))
	}
	return symbol + "\t" + strings.Join(params, ", ") + "\t" + strings.Join(results, ", ")
}

// The type with the paths of its packages in full, on one line.
func text(typ types.Type) string {
	full := types.TypeString(typ, func(pkg *types.Package) string { return pkg.Path() })
	return strings.NewReplacer("\t", " ", "\n", " ").Replace(full)
}
