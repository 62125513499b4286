{{/* The image of Berth, by digest where one is given. */}}
{{- define "berth.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The text of a manifest for this release: its namespace and its image. Takes a list: the context and the text. */}}
{{- define "berth.text" -}}
{{- $root := index . 0 -}}
{{- $shipped := printf "berth-queue:%s" $root.Chart.AppVersion -}}
{{- index . 1 | replace "berth-system" $root.Release.Namespace | replace $shipped (include "berth.image" $root) -}}
{{- end -}}

{{/* The manifests of a folder that is switched on. Takes a list: the context and the folder. */}}
{{- define "berth.folder" -}}
{{- $root := index . 0 -}}
{{- range $path, $_ := $root.Files.Glob (printf "files/%s/*.yaml" (index . 1)) }}
---
{{ include "berth.text" (list $root ($root.Files.Get $path)) }}
{{- end }}
{{- end -}}

{{/* Kueue's Configuration as text, without the frameworks of integrations that are false. */}}
{{- define "berth.configuration" -}}
{{- if .Values.configuration -}}
{{ toYaml .Values.configuration }}
{{- else -}}
{{- $text := get (get (.Files.Get "files/config.yaml" | fromYaml) "data") "config.yaml" -}}
{{- range $name, $on := .Values.integrations -}}
{{- if not $on -}}
{{- $framework := $.Files.Get (printf "files/integrations/%s.yaml" $name) | regexFind "^# [^: ]+:" | trimPrefix "# " | trimSuffix ":" -}}
{{- if $framework -}}
{{- $text = regexReplaceAll (printf "(?m)^ *- %s\n" (regexQuoteMeta $framework)) $text "" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ $text }}
{{- end -}}
{{- end -}}
