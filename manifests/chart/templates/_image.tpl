{{- /* The image, by digest if one is set. */}}
{{- define "spotgate.image" -}}
{{- $repository := required "image.repository names no image: --set image.repository=registry.example.com/spotgate,image.digest=sha256:... (docs/install.md)" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Whether there are documents in addition to the shipped ones: policies in the values, or a mode other than the default. */}}
{{- define "spotgate.own" -}}
{{- if or .Values.policies (ne .Values.enforcement "deny") (eq .Values.workloadFailurePolicy "Fail") }}true{{ end -}}
{{- end -}}
