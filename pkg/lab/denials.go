package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// inTerminatingNamespace is what the API server answers, also to an administrator, when something is to be created in a
// namespace that is being deleted. It has the status of a denied right, and says nothing about rights.
var inTerminatingNamespace = regexp.MustCompile(
	`is forbidden: unable to create new content in namespace \S+ because it is being terminated`)

// Denials returns the lines of the process's log so far that tell of a right that it lacks: those with the word "forbidden",
// however it is written.
func (p *Process) Denials() ([]string, error) {
	log, err := os.Open(p.Log)
	if err != nil {
		return nil, fmt.Errorf("the log of %s: %w", p.Name, err)
	}
	defer log.Close()
	lines, err := denials(log)
	if err != nil {
		return nil, fmt.Errorf("the log of %s: %w", p.Name, err)
	}
	return lines, nil
}

func denials(log io.Reader) ([]string, error) {
	var found []string
	reader := bufio.NewReader(log)
	for {
		line, err := reader.ReadString('\n')
		if strings.Contains(strings.ToLower(inTerminatingNamespace.ReplaceAllString(line, "")), "forbidden") {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
