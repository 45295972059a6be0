// Command verify reads Kubernetes manifests as the API server would, strictly: an unknown field, a
// wrong type, or a kind that isn't there is an error. It is a separate module, since it needs
// Kubernetes' types and lockproxy doesn't.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		if err == nil {
			err = verify(text)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// verify reads each document of a file, and looks whether what refers to another finds it.
func verify(text []byte) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme,
		policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	count := 0
	for buf := make([]byte, 1<<20); ; count++ {
		n, err := documents.Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		object, kind, err := strict.Decode(buf[:n], nil, nil)
		if err != nil {
			return fmt.Errorf("document %d: %w", count+1, err)
		}
		if deployment, ok := object.(*appsv1.Deployment); ok {
			if err := verifyPod(deployment.Spec.Template.Spec); err != nil {
				return fmt.Errorf("document %d: %w", count+1, err)
			}
		}
		fmt.Println(kind.Kind, "is valid")
	}
	if count == 0 {
		return errors.New("there is nothing in it")
	}
	return nil
}

// verifyPod looks whether probes name ports that there are, and mounts volumes.
func verifyPod(pod corev1.PodSpec) error {
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range pod.Containers {
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.String()] {
				return fmt.Errorf("container %s: a probe is missing, or its port isn't there",
					c.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("container %s: there is no volume %s", c.Name, m.Name)
			}
		}
	}
	return nil
}
