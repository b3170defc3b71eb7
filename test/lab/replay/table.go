package replay

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// InputError reports an invalid input file.
type InputError struct {
	File string
	// Line is the line in the file, from 1. Zero: the error is about the whole file.
	Line int
	// Problem contains the value and the expectation.
	Problem string
}

func (e *InputError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
}

// row is a row of a CSV file with a header.
type row struct {
	file   string
	line   int
	values map[string]string
}

// readTable returns the rows of a CSV file. Its first row names the columns, in any order, and must
// contain these columns. A file without rows is an error.
func readTable(file string, from io.Reader, columns ...string) ([]row, error) {
	text := bufio.NewReader(from)
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" { // some programs begin a file with this mark
		_, _ = text.Discard(3)
	}
	reader := csv.NewReader(text)
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, &InputError{File: file, Problem: "the file is empty: expected a header and rows"}
	}
	if err != nil {
		return nil, csvError(file, err)
	}
	for i, column := range header {
		if slices.Contains(header[:i], column) {
			return nil, &InputError{File: file, Line: 1, Problem: fmt.Sprintf("column %q is in the header twice", column)}
		}
	}
	for _, column := range columns {
		if !slices.Contains(header, column) {
			return nil, &InputError{File: file, Line: 1, Problem: fmt.Sprintf("no column %q in the header: expected %v", column, columns)}
		}
	}
	var rows []row
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, csvError(file, err)
		}
		line, _ := reader.FieldPos(0)
		values := map[string]string{}
		for i, column := range header {
			values[column] = record[i]
		}
		rows = append(rows, row{file: file, line: line, values: values})
	}
	if len(rows) == 0 {
		return nil, &InputError{File: file, Line: 1, Problem: "the file has a header but no rows"}
	}
	return rows, nil
}

// csvError adds the file to an error of the CSV reader.
func csvError(file string, err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &InputError{File: file, Line: parse.Line, Problem: parse.Err.Error()}
	}
	return fmt.Errorf("reading %s: %w", file, err)
}

// invalid returns an error about a value of the row.
func (r row) invalid(column, expected string) error {
	return r.problem("%s: %q: expected %s", column, r.values[column], expected)
}

// problem returns an error about the row.
func (r row) problem(format string, args ...any) error {
	return &InputError{File: r.file, Line: r.line, Problem: fmt.Sprintf(format, args...)}
}

// name returns a value that must not be empty.
func (r row) name(column string) (string, error) {
	if r.values[column] == "" {
		return "", r.invalid(column, "a name")
	}
	return r.values[column], nil
}

// maxNumber prevents that numbers overflow.
const maxNumber = 10_000_000_000

// count returns a value that must be an integer from 0 to maxNumber.
func (r row) count(column string) (int, error) {
	n, err := strconv.Atoi(r.values[column])
	if err != nil || n < 0 || n > maxNumber {
		return 0, r.invalid(column, fmt.Sprintf("an integer from 0 to %d", maxNumber))
	}
	return n, nil
}

// number returns a value that must be a number from least to maxNumber.
func (r row) number(column string, least float64) (float64, error) {
	n, err := strconv.ParseFloat(r.values[column], 64)
	if err != nil || math.IsNaN(n) || n < least || n > maxNumber {
		return 0, r.invalid(column, fmt.Sprintf("a number from %g to %d", least, maxNumber))
	}
	return n, nil
}

// maxOffset prevents that a duration overflows.
const maxOffset = 100 * 365 * 24 * time.Hour

// offset returns a number of seconds as a duration.
func (r row) offset(column string) (time.Duration, error) {
	seconds, err := r.number(column, 0)
	if err != nil {
		return 0, err
	}
	if seconds > maxOffset.Seconds() {
		return 0, r.invalid(column, "at most 100 years in seconds")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
