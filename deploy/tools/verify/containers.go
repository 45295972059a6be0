package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// verifyDockerfile reads a Dockerfile as BuildKit does, with its linter: its warnings are errors. It
// wants an image that is one static binary, run by a user without a name, not root.
func verifyDockerfile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var complaints []error
	for _, w := range parsed.Warnings {
		complaints = append(complaints, errors.New(w.Short))
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		complaints = append(complaints, fmt.Errorf("%s: %s", rule, message))
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err = errors.Join(append(complaints, err)...); err != nil {
		return err
	}
	last := stages[len(stages)-1]
	user, entry := "", false
	for _, command := range last.Commands {
		switch command := command.(type) {
		case *instructions.CopyCommand:
			if _, found := instructions.HasStage(stages, command.From); !found {
				return fmt.Errorf("copies from %q, which is no stage", command.From)
			}
		case *instructions.UserCommand:
			user = command.User
		case *instructions.EntrypointCommand:
			entry = !command.PrependShell
		}
	}
	switch id, _, _ := strings.Cut(user, ":"); {
	case last.BaseName != "scratch":
		return fmt.Errorf("the image is built on %s, want scratch", last.BaseName)
	case strings.Trim(id, "0123456789") != "" || strings.Trim(id, "0") == "":
		return fmt.Errorf("the image runs as user %q, want the number of one who isn't root", user)
	case !entry:
		return errors.New("the entry point takes a shell, which isn't there")
	}
	return nil
}

// verifyCompose reads a compose file as docker compose does. It wants what is built to be there, and to have a health check that takes no shell.
func verifyCompose(name string) error {
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return err
	}
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: name}},
	})
	if err != nil {
		return err
	}
	for _, service := range project.Services {
		if service.Build == nil {
			continue
		}
		file := filepath.Join(service.Build.Context, service.Build.Dockerfile)
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("service %s: %w", service.Name, err)
		}
		if health := service.HealthCheck; health == nil || len(health.Test) < 2 ||
			health.Test[0] != "CMD" {
			return fmt.Errorf("service %s: there is no health check that runs a program",
				service.Name)
		}
	}
	return nil
}
