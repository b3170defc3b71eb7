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

// inTerminatingNamespace matches the API server's answer to a request that creates an object in a
// namespace that is being deleted. Administrators get it too. It has the status of a denied right
// but does not depend on rights.
var inTerminatingNamespace = regexp.MustCompile(
	`is forbidden: unable to create new content in namespace \S+ because it is being terminated`)

// Denials returns the lines of the process's log so far that report a missing right: lines with
// the word "forbidden" in any case.
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
